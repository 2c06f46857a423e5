"""A JSON schema as a file has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zerowait.errors import ConfigError


def read_json_schema(path: Path) -> Any:
    """The JSON in a file, which `JsonSchema` then checks.

    Raises:
        ConfigError: it cannot be read, is not UTF-8 text, or is not JSON.
    """
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"the schema {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the schema {path} is not UTF-8 text: {error}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, for one
        raise ConfigError(f"{path}: is not JSON that can be read: {error}") from None
