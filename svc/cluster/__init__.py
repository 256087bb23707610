"""The other servers of the cluster, as this one sees them."""
