"""What asv follows across commits; it imports this folder and nothing else of the checkout."""
