"""Pure numerical functions: arrays in, arrays out.

Nothing here reads files, knows scikit-learn or assumes that an array lives in
NumPy memory. The n x n functions ask their arguments for an array namespace;
the row step has native kernels behind one signature.
"""
