"""Reports on reproduced experiments: one HTML file that needs nothing else, and every table as CSV and Parquet."""
