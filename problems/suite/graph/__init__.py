"""Graph learning over partitioned graphs: features and samples live with their owners and travel on demand."""
