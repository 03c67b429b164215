"""The test kit itself: a kit that sees nothing proves nothing."""
