"""The fast cache in tests: caches and cores of few slots, engines that wait, a second thread."""
