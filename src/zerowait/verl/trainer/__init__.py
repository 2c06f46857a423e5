"""verl's trainer modes `zerowait...` and what they need."""

# Before every module of this package: the import registers the trainer mode, which imports them.
import verl.trainer.ppo.v1  # noqa: F401
