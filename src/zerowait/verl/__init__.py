"""zerowait inside verl: a plug-in, never a fork.

Importing this package loads neither verl, Ray nor torch. verl itself finds `zerowait.verl.plugin`
through the ``verl.plugins`` entry point, in every process of a run.
"""
