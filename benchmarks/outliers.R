# Fit ROBPCA (rrcov) or MacroPCA (cellWise) to a table, for benchmarks.outliers.
#   Rscript outliers.R METHOD X.csv RANK FOLDER
# Writes fitted.csv, the fitted values of all rows, and rows.csv, the numbers of the rows that were flagged, from 1.
given <- commandArgs(trailingOnly = TRUE)
X <- as.matrix(read.csv(given[2], header = FALSE))
k <- as.integer(given[3])
began <- proc.time()[["elapsed"]]
if (given[1] == "robpca") {
  fit <- rrcov::PcaHubert(X, k = k, kmax = max(k, 10))
  fitted <- sweep(fit@scores %*% t(fit@loadings), 2, fit@center, "+")
  bad <- which(!fit@flag)
} else {
  fit <- cellWise::MacroPCA(X, k = k, MacroPCApars = list(silent = TRUE))
  fitted <- sweep(fit$scores %*% t(fit$loadings), 2, fit$center, "+")
  bad <- fit$indrows
}
seconds <- proc.time()[["elapsed"]] - began
write.table(fitted, file.path(given[4], "fitted.csv"), sep = ",", row.names = FALSE, col.names = FALSE)
write.table(as.integer(bad), file.path(given[4], "rows.csv"), row.names = FALSE, col.names = FALSE)
cat(seconds)
