"""Static detectors, one file each: a name, a version, a class, and a pure function over a source.

A hit is a tag with a confidence and never a verdict, since honest kernels show many of the same
signs: from 0.5 on a person should look. A detector reads syntax trees; what stands in comments and
docstrings is not seen. To add one, add a file (or one in ./flywheel/detectors/) with VERSION,
CLASS and `find(source)`; `evaluators audit` then marks the past with it.
"""
