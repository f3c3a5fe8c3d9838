"""What others printed, held against the records and laws of this project; nothing here is an answer."""
