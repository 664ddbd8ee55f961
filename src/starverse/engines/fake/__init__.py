"""The engine of tests and of the simulator: allocations on a virtual clock, with outcomes told in advance."""

from starverse.engines.fake.engine import Binder, Call, FakeEngine, Trouble
from starverse.engines.fake.run import FakeRun

__all__ = ["Binder", "Call", "FakeEngine", "FakeRun", "Trouble"]
