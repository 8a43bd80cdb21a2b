"""Tests against a real Spark cluster: a master and two workers as processes, which need pyspark and Java 17."""
