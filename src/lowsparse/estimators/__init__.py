"""The estimators, with the interface of scikit-learn: rows are samples, `fit` learns, `transform` takes new rows.

They need scikit-learn, which `import lowsparse` does not.
"""

from ..support.optional import import_optional

import_optional("sklearn", "sklearn", "the estimators")

from .imputer import RobustImputer  # noqa: E402
from .pca import RobustPCA  # noqa: E402
from .series import RobustSeriesImputer  # noqa: E402
from .streaming import StreamingRobustPCA  # noqa: E402

__all__ = ["RobustImputer", "RobustPCA", "RobustSeriesImputer", "StreamingRobustPCA"]
