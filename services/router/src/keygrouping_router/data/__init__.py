"""The data path: a batch comes in, is sorted out, routed, accounted for and packed."""
