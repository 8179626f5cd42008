-- One row per kernel and extractor version: a hash that kernels with the same code tokens share.
-- Comments, docstrings, whitespace, paths, entry point and build flags do not change it. It is the
-- hash of all bands of the MinHash signature: fewer bands would also match kernels that are similar.
--
-- signature: hash of the code tokens
SELECT kernel_id, extractor_version, hash(minhash_bands) AS signature
FROM kernel_features
WHERE len(minhash_bands) > 0
