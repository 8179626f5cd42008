"""Static detectors, one file each: a name, a version, and a pure function over a source.

A hit is a tag with a confidence and never a verdict, because honest kernels show many of the same
signs. A person should review hits with a confidence of 0.5 or more. Detectors read syntax trees,
without comments and docstrings. To add one, add a file (or one in ./flywheel/detectors/) with
VERSION and `find(source)`; `evaluators audit` then searches stored kernels with it.
"""
