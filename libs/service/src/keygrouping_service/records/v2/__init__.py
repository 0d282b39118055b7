"""Record batches of Kafka's message format 2, read into columns and written from them by compiled code.

It needs numba, which takes a second to import: only modules that are themselves imported late may use this.
"""
