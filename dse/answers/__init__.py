"""Ask on the command line: arguments in, text or JSON out; every file but the texts is a command."""
