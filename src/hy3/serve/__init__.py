"""The HTTP server: `hy3 serve`. Needs the packages of the extra `hy3[serve]`."""
