"""The Spark host: the embedded session, and eddies inside Spark tasks."""

from eddies.spark.java import JavaError, JavaRuntime, find_java
from eddies.spark.session import session

__all__ = ["JavaError", "JavaRuntime", "find_java", "session"]
