"""The paper's figures and table, and what it left as outlook, on any pair of movies."""
