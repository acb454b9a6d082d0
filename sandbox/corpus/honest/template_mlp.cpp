// kw: {"problem": "mlp", "faster": true, "template": {}, "text": "the family at its default point"}
