"""The configuration: a YAML file, its options and their validation.

    load(path) -> RouterConfig, or ConfigError with every problem and its file:line:column

An option is written once, as a field of a section's class (``options.option``); reader, defaults,
JSON Schema and help come from there. See deploy/router.yaml for all of them.
"""

from router.service.config.file import json_schema
from router.service.config.load import RouterConfig, load, read
from router.service.config.problems import ConfigError, Problem
from router.service.config.references import Secret

__all__ = ["ConfigError", "Problem", "RouterConfig", "Secret", "json_schema", "load", "read"]
