"""Agent loops for verl: ``search``, and the manager that places rewards on model tokens."""
