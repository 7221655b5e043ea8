"""Diagnosis of a running router: its problems, worst first, each with advice for the operator.

rules      all of them, in their order      process     the router and its workers
readiness  whether it is ready              links       containers, sites, peers
problem    what is found                    deliveries  stalled, rejected, in doubt
                                            disks       journal, lease, ledger, spans
                                            stored      the store
"""
