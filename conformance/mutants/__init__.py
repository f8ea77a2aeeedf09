"""Known-bad owners, clients and maintenance jobs, each one small edit away from a model; and good ones that use the
freedoms of the documents. The kit's tests require that its checks fail every bad one and no good one."""
