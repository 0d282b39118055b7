"""The input of a pipeline, whoever reads it: which events can be used, which come too late, and receipts for all."""
