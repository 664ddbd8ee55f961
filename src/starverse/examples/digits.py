"""The 1,797 handwritten digits of UCI as plain files, made from scikit-learn's copy (the ``demo`` extra).

``images.npy`` is (1797, 8, 8) uint8 with ink 0..16, ``labels.npy`` is (1797,) uint8; both load without
pickle. The bytes are the same on every machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

README = """\
Handwritten digits
==================

1,797 images of the digits 0-9, 8 x 8 pixels with 17 grey levels, from the test part of "Optical
Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49), as distributed with scikit-learn.

images.npy   uint8, shape (1797, 8, 8), ink from 0 to 16
labels.npy   uint8, shape (1797,), the digit shown

Read them with numpy.load(path, allow_pickle=False).
"""

LICENCE = """\
The data set is licensed by the UCI Machine Learning Repository under
Creative Commons Attribution 4.0 International (CC BY 4.0),
https://creativecommons.org/licenses/by/4.0/

Attribution: E. Alpaydin and C. Kaynak (1998). Optical Recognition of Handwritten Digits.
UCI Machine Learning Repository. https://doi.org/10.24432/C50P49
"""

FILES = ("LICENSE.txt", "README.txt", "images.npy", "labels.npy")


def write_digits(folder: Path) -> list[Path]:
    """Write the data set with its description and licence into ``folder``; returns the files written.

    Raises ``ModuleNotFoundError`` without scikit-learn (``pip install 'starverse[demo]'``).
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "images.npy", digits.images.astype(np.uint8), allow_pickle=False)
    np.save(folder / "labels.npy", digits.target.astype(np.uint8), allow_pickle=False)
    (folder / "README.txt").write_text(README, encoding="utf-8")
    (folder / "LICENSE.txt").write_text(LICENCE, encoding="utf-8")
    return [folder / name for name in FILES]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m starverse.examples.digits FOLDER")
    for written in write_digits(Path(sys.argv[1])):
        print(written)
