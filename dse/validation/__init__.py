"""Hold answers against measurement: ``answered`` before it, on record; ``laws`` and ``fanouts`` on what is left out."""
