"""Judge calls of one engine: the cached judge, per-sample runners, anchors."""
