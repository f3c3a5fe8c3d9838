"""What one can ask: arguments in, text or JSON out; every file but the texts is a command."""
