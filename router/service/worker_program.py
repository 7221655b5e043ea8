"""The program that the supervisor starts for each worker: ``worker_process``, imported quickly."""

import sys

from router.at_rest import at_rest

with at_rest():
    from router.service.worker_process import main

if __name__ == "__main__":
    sys.exit(main())
