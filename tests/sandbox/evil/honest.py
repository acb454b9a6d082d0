# The plain incumbent as it is: no part of the planted slowness.
