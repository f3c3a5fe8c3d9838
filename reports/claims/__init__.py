"""Hold others' printed numbers against the records and laws of this project; nothing here is an answer."""
