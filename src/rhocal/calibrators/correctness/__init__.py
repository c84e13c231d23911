"""The probability that an answer is right, for models that give no score for each class.

`model` fits it on features of the answers, `rows` applies it to tables and `file` saves it. Maps of class scores belong in the
packages beside this one.
"""
