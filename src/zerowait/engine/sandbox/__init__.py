"""Runs strangers' programs, confined on this machine or at a remote sandbox."""
