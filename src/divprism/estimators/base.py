"""What an estimator is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from divprism.operators import Operator
from divprism.spectrum import Spectrum

__all__ = ["Estimator"]


class Estimator(ABC):
    """A way to get the spectra of trace-one matrices.

    A new estimator is a frozen dataclass that defines `spectra`, and one row in the contract table of the tests.
    """

    @abstractmethod
    def spectra(self, operators: Sequence[Operator]) -> list[Spectrum]:
        """The spectrum of each operator; work that several share is done once."""

    def spectrum(self, operator: Operator) -> Spectrum:
        """The spectrum of one operator."""
        return self.spectra([operator])[0]
