"""Which to choose: from measured records to a recommendation."""
