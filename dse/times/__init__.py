"""How long each part takes: measured where records tell, else modeled."""
