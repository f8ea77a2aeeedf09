"""Known-bad owners, clients and maintenance jobs, each one small edit away from a model; and good ones that use the
freedoms of the documents. The kit's own tests hold the suite to them: it finds all bad ones, accuses no good one."""
