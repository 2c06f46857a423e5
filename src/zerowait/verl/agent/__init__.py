"""Agent loops for verl: ``search``, and the manager that places rewards on model tokens."""

# Before every module of this package: the import registers the trainer mode, which imports them.
import verl.trainer.ppo.v1  # noqa: F401
