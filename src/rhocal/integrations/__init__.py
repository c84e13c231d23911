"""rhocal inside frameworks that need a few lines each: Ray, Spark, MLflow, Keras. One module per framework, its only importer.

Ray and Spark are executors: fits and metrics run over their blocks as over any other source. Whatever needs more than one
module has a package of its own beside this one (`torch`, `dask`).
"""
