"""Words the street has no picture for: they teach "nothing here". The held-out ones are never trained and tell how well that carries over."""

import random

TRAINED = (
    "giraffe elephant lion tiger zebra horse cow sheep pig goat rabbit mouse rat squirrel fox wolf bear deer monkey panda kangaroo camel snake lizard "
    "frog turtle crocodile shark whale dolphin octopus crab lobster spider ant bee butterfly worm snail chicken turkey peacock ostrich chair "
    "sofa bed desk lamp mirror carpet curtain pillow blanket clock television radio computer laptop keyboard printer phone tablet camera microphone "
    "guitar piano violin drum trumpet flute book pen pencil eraser ruler scissors glue paper envelope stamp map flag cup mug plate bowl fork knife spoon "
    "kettle pan oven fridge toaster microwave blender bottle glass jug basket bucket broom mop hammer screwdriver drill wrench ladder rope nail "
    "pizza burger sandwich bread cheese apple banana grape lemon melon peach pear plum cherry strawberry tomato potato carrot onion garlic "
    "cucumber mushroom cake cookie chocolate candy coffee tea milk juice aeroplane helicopter rocket satellite balloon kite ship boat canoe submarine "
    "train tram metro tractor scooter skateboard sled excavator crane bulldozer ambulance caravan wagon anchor sail paddle tent torch compass "
    "umbrella glove scarf shirt trousers skirt sock belt necklace ring bracelet earring crown mask wig moustache doll robot puzzle dice "
    "chess trophy medal racket skis snowman igloo castle temple pyramid statue fountain windmill lighthouse bridge tunnel volcano waterfall island "
    "desert jungle planet galaxy dinosaur dragon unicorn mermaid ghost witch vampire pirate knight cactus sunflower tulip rose pumpkin "
    "wheel engine tyre seatbelt helmet backpack wallet key coin banknote candle matchbox toothbrush towel soap sponge bathtub toilet sink"
).split()
HELD_OUT = (
    "penguin walrus hedgehog flamingo scorpion jellyfish armchair wardrobe typewriter telescope accordion saxophone pineapple broccoli pancake "
    "spaghetti hovercraft parachute motorbike wheelbarrow chandelier bookshelf dumbbell surfboard trampoline cauldron harp otter badger teapot "
    "drone barbecue lawnmower fire engine vending machine washing machine ice cream hot dog tennis net shopping trolley"
).split()


def nonsense(rng):
    """A word of random letters: half of it pronounceable, half not."""
    length = rng.randint(2, 10)
    if rng.random() < 0.5:
        return "".join(rng.choice("bcdfghjklmnpqrstvwxyz" if i % 2 else "aeiou") for i in range(length))
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length))


def unknown_things(count, known, colours, rng):
    """`count` things to train as absent: nouns, nonsense, and either after a colour."""
    things = []
    while len(things) < count:
        word = rng.choice(TRAINED) if rng.random() < 0.4 else nonsense(rng)
        word += "s" if rng.random() < 0.15 else ""
        if rng.random() < 0.12:
            word = f"{word} {rng.choice(TRAINED)}"
        if rng.random() < 0.2:
            word = f"{rng.choice(colours)} {word}"
        if word not in known:
            things.append(word)
    return things


def held_out_things(count, seed):
    """Things for evaluation only: nouns that are not trained, then nonsense of another seed."""
    rng = random.Random(seed)
    return [rng.choice(HELD_OUT) if i % 2 == 0 else nonsense(rng) + nonsense(rng)[:3] for i in range(count)]
