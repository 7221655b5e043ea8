"""Checks that the pipeline's requirements are installed, and how to install them."""

import importlib.util
import os
import shutil
from typing import Final

from router.errors import RouterError

INSTALL: Final = "pip install '.[spark]' in the router's source folder"
INSTALL_OTEL: Final = "pip install '.[otel]' in the router's source folder"
_OTEL: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
JAVA: Final = "a Java runtime 17 or later (Debian: apt-get install default-jre-headless)"


class MissingError(RouterError):
    """Something is not installed; the text says what to install."""


def need_arrow() -> None:
    """Checks the requirements of reading and writing Parquet.

    Raises:
        MissingError: the extra is not installed.
    """
    _need("pyarrow", "numpy")


def need_otel() -> None:
    """Checks the requirements of exporting spans.

    Raises:
        MissingError: the extra is not installed.
    """
    if not has_otel():
        raise MissingError(f"opentelemetry-sdk is not installed: {INSTALL_OTEL}")


def has_otel() -> bool:
    """Returns whether the extra router[otel] is installed."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in _OTEL)
    except ModuleNotFoundError:  # of the package around one of them
        return False


def need_spark() -> None:
    """Checks the requirements of a Spark job.

    Raises:
        MissingError: the extra is not installed, or there is no Java.
    """
    _need("pyspark", "pyarrow", "pandas", "numpy")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        raise MissingError(f"Spark needs {JAVA}")


def _need(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"{missing[0]} is not installed: {INSTALL}")
