"""Judge calls of one engine: the cached judge, its factory, per-sample runners, anchors."""
