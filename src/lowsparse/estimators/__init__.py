"""The estimators, as scikit-learn knows them: rows are samples, `fit` learns, `transform` takes new rows.

They need scikit-learn, which `import lowsparse` does not.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        'the estimators need scikit-learn: python -m pip install "lowsparse[sklearn]"', name=error.name
    ) from error

from .imputer import RobustImputer
from .pca import RobustPCA
from .streaming import StreamingRobustPCA

__all__ = ["RobustImputer", "RobustPCA", "StreamingRobustPCA"]
