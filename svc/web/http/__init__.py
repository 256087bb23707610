"""HTTP itself: connections, requests, paths, queries, answers, and the router."""
