"""The resources of the HTTP interface, a module each."""
