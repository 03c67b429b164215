"""The modules for frameworks by themselves; over real HTTP they are tested in tests/integration."""
