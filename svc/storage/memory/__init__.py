"""The read cache: answers of the store, kept while they are known to hold."""
