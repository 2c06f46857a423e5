"""JSON schemas by which judges answer and responses are scored, checked before anything runs.

The texts that are held against them are a policy's, so nothing in a text may hang or crash the
check: no reference leaves the schema, patterns take linear time, no value is held against a part of
the schema again, numbers of any size are compared exactly, and what is nested too deeply does not
fit.
"""

from zerowait.json_schema.reading import read_json_schema
from zerowait.json_schema.schema import DEEPEST, JsonSchema, SchemaFault

__all__ = ["DEEPEST", "JsonSchema", "SchemaFault", "read_json_schema"]
