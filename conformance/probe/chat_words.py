"""The words of which prompts to chat servers are made: short and common ones.

Most tokenizers have each as one token where a space stands before it. Where one has not, prompts
have a few tokens more, which the bounds of the judge allow for.
"""

from __future__ import annotations

_TEXT = """
able about above across after again age ago air all along also always among and animal another
answer any area arm around art away back bad bag ball bank bar base bear beat beauty bed before
began behind best better between big bird black blood blue board boat body book born both bottom
box boy bread break bright bring brother brown build burn bus business busy but buy cake call
camp can car card care carry case cat catch cause cell center chair chance change child choose
church circle city class clean clear clock close clothes cloud coast coat cold color come common
cook cool copy corn corner cost could count country course cover cross crowd cut dance dark day
dead deal deep desk die dinner dog door down draw dream dress drink drive drop dry during ear
early earth east easy eat edge egg eight end enemy energy engine enough even evening ever every
eye face fact fall family far farm fast father fear feel feet few field fight fill film final
find fine finger fire first fish fit five floor flow flower fly follow food foot force forest
form forward four free fresh friend from front fruit full fun game garden gas gate gave get girl
give glass goal gold gone good got grass gray great green ground group grow guess gun guy hair
half hall hand happen happy hard hat have head hear heart heat heavy held help here high hill
hit hold hole home hope horse hospital hot hotel hour house how huge human hundred ice idea
image inch inside iron island issue item job join joy judge jump just keep key kill kind king
"""

WORDS = tuple(_TEXT.split())
"""They stand for the tokens of a prompt: a word is the text of the token id of its place."""
